"""Adopts the work of a MirrorMaker 2: its positions, its offset syncs, its copies."""
