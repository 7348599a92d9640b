"""Prevents flows from copying records in a loop, or twice.

`guard` has the checks, which run before anything is written, and the message of each refusal.
"""
