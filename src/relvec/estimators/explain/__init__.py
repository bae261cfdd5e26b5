"""The best model of every size."""
