"""Losses of training by document: taken from trainers into tables, added up by document, shown."""
