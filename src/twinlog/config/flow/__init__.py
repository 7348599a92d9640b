"""What one flow is to do, from the settings that count for it.

`schema` has the values that everything below reads; `precedence` says which line counts, `flows`
puts a flow together, `contradictions` refuses what cannot both be meant.
"""
