"""`twinlog doctor`: why a flow is slow or has stopped. Read in this order: `observation` (what was
seen), `findings` (what follows from it: `standstill` and `pace`), `observing` (how it is seen).
"""
