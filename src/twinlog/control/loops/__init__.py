"""Keeps a flow from copying what would come back, or be there twice.

`guard` is asked before anything is written, and words each refusal.
"""
