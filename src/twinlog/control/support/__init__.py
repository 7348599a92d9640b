"""The support bundle, and how secrets are kept out of it."""
