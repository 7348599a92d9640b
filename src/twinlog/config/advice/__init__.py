"""Warnings about configurations that are valid, but probably not as intended.

`audit` checks all keys; `explanation` describes each key with its line and effect.
"""
