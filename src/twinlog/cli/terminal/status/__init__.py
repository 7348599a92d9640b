"""How `twinlog status` shows flows: `rows.py` (what is said of a topic), `topic_table.py`
(their columns), `screen.py` (flows, topics, totals, as wide as the terminal), `watching.py` (the
same again and again).
"""
