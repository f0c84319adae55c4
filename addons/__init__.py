"""What the tap does with an exchange, one file per concern."""
