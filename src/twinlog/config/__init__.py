"""mm2.properties and its relatives become one frozen schema; every error names file, line and key."""
