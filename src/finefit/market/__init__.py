"""Live prices and their history: providers, a database, watches. Needs the extra ``finefit[history]``."""
