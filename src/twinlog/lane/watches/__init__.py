"""What a lane would overlook while it copies: each file watches for one thing."""
