"""Settings for every test process: the machine's cores are shared with the other test processes."""

import torch

torch.set_num_threads(1)
