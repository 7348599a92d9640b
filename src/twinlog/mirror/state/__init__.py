"""Records of the state topic: who leads a flow, and which topics are copies."""
