"""What can be said against a job before it runs."""
