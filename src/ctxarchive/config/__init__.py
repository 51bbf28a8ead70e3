"""Settings: a file, resolved in named steps to frozen values."""
