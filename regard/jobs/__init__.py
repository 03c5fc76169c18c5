"""Batch jobs: large files through a model, on all cores, all GPUs or a cluster, and resumed after any interruption.

The input is read in shards (`shards`), each a few thousand rows of text, TSV, JSONL or Parquet (`records`). Workers
answer them with a model (`tasks`): processes of this machine (`local_workers`) or of a cluster (`ray_workers`). Each
finished shard is written to the job's folder next to the output (`job_folder`), and all are joined at the end.
"""
