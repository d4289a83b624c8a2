"""Collections: clips, captions and ratings in a folder."""
