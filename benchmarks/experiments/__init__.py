"""What completeness is worth: the published experiments, on generated logs and our own clock."""
