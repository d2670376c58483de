#!/bin/sh
# Copy a poem to a Rabbit, count its words there, and copy the count back.
#
#FLUX: -N2 -n2 -t5m
#FLUX: --job-name=copy-in-out
#FLUX: -S dw="""
#FLUX: #DW jobdw type=xfs capacity=10GiB name=poem
#FLUX: #DW copy_in source=/lustre/input/poem.txt destination=$DW_JOB_poem/
#FLUX: #DW copy_out source=$DW_JOB_poem/words.txt destination=/lustre/output/
#FLUX: """

set -e
echo "job $FLUX_ENCLOSING_ID has its storage at $DW_JOB_poem"
cat "$DW_JOB_poem/poem.txt"
wc -w < "$DW_JOB_poem/poem.txt" | tr -d ' ' > "$DW_JOB_poem/words.txt"
echo "words: $(cat "$DW_JOB_poem/words.txt")"
