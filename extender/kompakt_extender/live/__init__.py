"""The page that shows the cluster as it is now, and the stream of changes that it reads. Nothing here changes anything."""
