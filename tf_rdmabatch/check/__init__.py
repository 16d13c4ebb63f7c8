"""What connects the hosts of a job, and how fast: ``tf-rdmabatch check``.

Every task has an `agent`, which listens at the address of the task and does what it is asked for;
the first one leads (`lead`): it has each connect to each other one (`reach`), then `measure`, and
turns the `result` into `findings`, a `report` and a `plot`.
"""
