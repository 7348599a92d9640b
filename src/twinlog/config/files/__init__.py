"""The formats that settings are written in: .properties, MirrorMaker 1's pair, variables.

`raw` is what every format becomes before its values are read.
"""
