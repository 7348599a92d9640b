"""Adopts the copies of a MirrorMaker 2, by its positions and offset syncs (`--adopt-mm2`)."""
