"""Jobs to run, and what makes their models and data."""
