"""Keeps a flow from copying in a loop, or twice.

`guard` checks this before anything is written, and has the text of each refusal.
"""
