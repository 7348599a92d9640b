"""The support bundle, and the removal of secrets from it."""
