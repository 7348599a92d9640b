"""mm2.properties becomes one frozen schema; every error names file, line and key."""
