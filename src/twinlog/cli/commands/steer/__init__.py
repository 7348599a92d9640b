"""Commands that say what people want of flows and topics that run: `flow`, `topic`."""
