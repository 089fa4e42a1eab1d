"""What people get to read: terminal, JSON and (later) Markdown and HTML, in English and Chinese."""
