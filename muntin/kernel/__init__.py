"""Records to blocks, blocks to blocks, blocks to rows."""
