"""What is said of a configuration that can be run, but may not be meant so.

`audit` goes through all keys; `explanation` tells each with its line and effect.
"""
