"""What fitted estimators predict, and how well."""
