"""A teacher and a weaker student for arithmetic, trained here in about a minute: for tests and quick trials."""
