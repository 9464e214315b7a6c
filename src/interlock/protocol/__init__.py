"""What an operation does, step by step, without doing any of it.

Each operation is a generator, a flow, that yields what it needs (an effect) and is sent the result.
`threads` and `tasks` run them, so that there is one protocol.
"""
