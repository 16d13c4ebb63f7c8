"""What ``tf-rdmabatch bench strategy`` runs in a job of its own: `chief` is the script.

Works are in `programs`, the systems that run them in `systems`. The command itself, which knows no
TensorFlow, is in ``tf_rdmabatch/bench``.
"""
