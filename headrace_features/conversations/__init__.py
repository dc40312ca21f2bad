"""Conversations: their messages in canonical form, rendered and masked as models are trained."""
