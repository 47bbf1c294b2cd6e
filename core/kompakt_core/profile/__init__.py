"""What a measured training says: where its steps lose time, what it costs where, how much it suffers from slow links. Pure."""
