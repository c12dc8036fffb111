"""What a node can offer: commands, files, notices on the desktop, and capabilities of installed packages."""
