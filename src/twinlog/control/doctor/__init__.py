"""`twinlog doctor`: finds out why a flow is slow or has stopped. Read in this order: `findings`
(the data, and the conclusions from it), `observing` (collects the data).
"""
