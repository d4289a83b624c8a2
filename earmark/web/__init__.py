"""Pages: what every page that earmark serves shares."""
