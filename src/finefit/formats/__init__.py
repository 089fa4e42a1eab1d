"""Configuration formats, one module a tool: what a file says, before any default is filled in."""
