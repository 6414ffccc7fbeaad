"""Let a rank fail in mid-write of a model file: SAVE_FAULT=full (the disk is full) or crash (the rank dies).

Python imports this module at its start if its folder is in PYTHONPATH. The operating system itself stops the
write: from the moment at which a whole model is saved, no file may grow beyond half of that model's size. So
it makes no difference how the bytes get to the disk, and what stands there proves that the writer was there.
"""

import io
import os
import resource
import signal

if os.environ.get("SAVE_FAULT") and "RANK" in os.environ:  # not the launcher
    import torch

    save = torch.save

    def save_until_half(obj, *args, **kwargs):
        if isinstance(obj, torch.nn.Module):
            whole = io.BytesIO()
            save(obj, whole)
            half = len(whole.getvalue()) // 2
            resource.setrlimit(resource.RLIMIT_FSIZE, (half, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            if (
                os.environ["SAVE_FAULT"] == "crash"
            ):  # Python ignores the signal, so that the write fails instead
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        save(obj, *args, **kwargs)

    torch.save = save_until_half
