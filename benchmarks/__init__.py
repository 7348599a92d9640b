"""Twinlog and Java MirrorMaker 2, side by side in one run on one machine."""
