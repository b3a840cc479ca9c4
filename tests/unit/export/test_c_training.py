"""Training steps as C programs: the weights have the bits that Python's have."""

from __future__ import annotations

import subprocess

import numpy as np

import weft
from tests.unit.export.test_c_program import build, needs_cc, needs_linker
from weft import nn, optim

pytestmark = [needs_cc, needs_linker]

STEPS = 5
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "step.h"

static char memory[(1 << 16) + 64];
static void *states[STEP_NUM_STATES];

int main(int argc, char **argv) {
  float x[8 * 6], y[8], loss;
  const void *inputs[2];
  void *outputs[1];
  char *workspace = memory + (64 - (size_t)memory % 64);
  FILE *data = fopen(argv[1], "rb"), *file = fopen(argv[2], "wb");
  if (argc != 3 || !data || !file || step_workspace_size() > 1 << 16) return 1;
  inputs[0] = x, inputs[1] = y, outputs[0] = &loss;
  for (int i = 0; i < STEP_NUM_STATES; i++) states[i] = malloc(step_state_bytes[i]);
  if (step_init_states(NULL) != STEP_NULL_POINTER || step_init_states(states)) return 2;
  while (fread(x, sizeof x, 1, data) == 1 && fread(y, sizeof y, 1, data) == 1) {
    if (step_run(inputs, outputs, states, workspace)) return 3;
    fwrite(&loss, sizeof loss, 1, file);
  }
  for (int i = 0; i < STEP_NUM_STATES; i++) fwrite(states[i], step_state_bytes[i], 1, file);
  return fclose(file) ? 4 : 0;
}
"""


def test_a_program_in_c_trains_to_the_same_bits(tmp_path):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = optim.AdamW(net.parameters(), lr=0.01)

    @weft.train_step
    def step(x, y):
        loss = ((net(x)[:, 0] - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((8, 6), np.float32), rng.standard_normal(8, np.float32))
               for _ in range(STEPS + 1)]
    step(*map(weft.tensor, batches[0]))
    step.export(tmp_path / "step", format="c")
    losses = [np.float32(step(*map(weft.tensor, batch)).numpy()) for batch in batches[1:]]
    (tmp_path / "train.c").write_text(PROGRAM)
    program = build(tmp_path / "step", tmp_path / "train.c", tmp_path / "step" / "step.o")
    (tmp_path / "data").write_bytes(b"".join(a.tobytes() for batch in batches[1:] for a in batch))
    subprocess.run([program, tmp_path / "data", tmp_path / "result"], check=True)
    result = (tmp_path / "result").read_bytes()
    assert result[:4 * STEPS] == np.stack(losses).tobytes()
    trained = b"".join(one.detach().numpy().tobytes() for one in step.states())
    assert result[4 * STEPS:] == trained
    assert len(set(losses)) == STEPS
