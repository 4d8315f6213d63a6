"""Leak guard and capture inside other programs: Flower (extra ``flower``) and NVFlare (extra ``nvflare``)."""
