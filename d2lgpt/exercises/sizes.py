"""Sizes of GPT-2 small that several exercises count with."""

D, V, T = 768, 50_257, 1024  # width, vocabulary and context
TABLE, POSITIONS = V * D, T * D
ATTENTION, FEED_FORWARD = 4 * D * D + D, 8 * D * D + 5 * D  # of a block without query biases
BLOCK = 12 * D * D + 13 * D  # of a block with all biases, gains and shifts
GPT2 = TABLE + POSITIONS + 12 * BLOCK + 2 * D
