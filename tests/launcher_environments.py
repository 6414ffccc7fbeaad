"""What launchers put into the environment of a process: whole sets, of one host and of several."""

from __future__ import annotations


def torchrun(rank=1, size=2, *, per_node=2, address="node7", elastic=True) -> dict[str, str]:
    """A worker of torchrun on ``size / per_node`` hosts; without ``elastic`` the five, set by hand."""
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % per_node),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": address,
        "MASTER_PORT": "29500",
    }
    if not elastic:
        return environment
    return environment | {
        "GROUP_RANK": str(rank // per_node),
        "GROUP_WORLD_SIZE": str(size // per_node),
        "LOCAL_WORLD_SIZE": str(per_node),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_x/none_y/attempt_0/1/error.json",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def sbatch(tasks=4, nodes="node[7-8]", count=2) -> dict[str, str]:
    """The script of a job of SLURM: a plain process, although it has a SLURM_PROCID."""
    return {
        "ENVIRONMENT": "BATCH",
        "SLURMD_NODENAME": nodes.split("[")[0] + "7",
        "SLURM_CLUSTER_NAME": "cluster",
        "SLURM_CPUS_ON_NODE": "8",
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": "4711",
        "SLURM_JOB_CPUS_PER_NODE": f"8(x{count})",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": str(count),
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": nodes,
        "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks // count),
        "SLURM_PROCID": "0",
        "SLURM_SUBMIT_DIR": "/home/user",
        "SLURM_TASKS_PER_NODE": f"{tasks // count}(x{count})",
        "SLURM_TASK_PID": "12345",
        "SLURM_TOPOLOGY_ADDR": "node7",
    }


def srun(rank=3, tasks=4, *, nodes="node[7-8]", count=2, step="0") -> dict[str, str]:
    """A task of srun in a job of SLURM."""
    per_node = tasks // count
    tasks_per_node = f"{per_node}(x{count})" if count > 1 else str(per_node)
    return sbatch(max(tasks, 4), nodes, count) | {
        "SLURM_DISTRIBUTION": "block",
        "SLURM_GTIDS": "2,3",
        "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7",
        "SLURM_LOCALID": str(rank % per_node),
        "SLURM_NODEID": str(rank // per_node),
        "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS": str(tasks),
        "SLURM_PROCID": str(rank),
        "SLURM_SRUN_COMM_HOST": "10.0.0.7",
        "SLURM_SRUN_COMM_PORT": "40404",
        "SLURM_STEPID": step,
        "SLURM_STEP_ID": step,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_NUM_NODES": str(count),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node,
        "SLURM_TASKS_PER_NODE": tasks_per_node,
        "SLURM_TASK_PID": "23456",
    }


def interactive_shell() -> dict[str, str]:
    """The shell of salloc where the cluster starts it as a special step, with its MPI plug-in."""
    return srun(0, 4, step="4294967290") | {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.4711.x"}


def plain_slurm(rank: int) -> dict[str, str]:
    """Two processes started by hand with just enough of SLURM's variables: no count a node, no step."""
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }


def open_mpi_4(rank=1, size=2, local_size=2) -> dict[str, str]:
    """A process of mpirun of Open MPI 4."""
    return {
        "OMPI_APP_CTX_NUM_PROCS": str(size),
        "OMPI_COMMAND": "mace_run_train",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local_size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "OMPI_COMM_WORLD_NODE_RANK": str(rank % local_size),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_FILE_LOCATION": "/tmp/ompi.node7.0/pid.29749/0/0",
        "OMPI_FIRST_RANKS": "0",
        "OMPI_MCA_ess": "^singleton",
        "OMPI_MCA_ess_base_jobid": "415956993",
        "OMPI_MCA_ess_base_vpid": str(rank),
        "OMPI_MCA_orte_bound_at_launch": "1",
        "OMPI_MCA_orte_hnp_uri": "415956992.0;tcp://10.0.0.7:59175",
        "OMPI_MCA_orte_launch": "1",
        "OMPI_MCA_pmix": "^s1,s2,cray,isolated",
        "OMPI_NUM_APP_CTX": "1",
        "OMPI_UNIVERSE_SIZE": str(size),
        "PMIX_HOSTNAME": "node7",
        "PMIX_ID": f"415956993.{rank}",
        "PMIX_NAMESPACE": "415956993",
        "PMIX_RANK": str(rank),
        "PMIX_SERVER_URI4": "415956992.0;tcp4://127.0.0.1:50995",
        "PMIX_VERSION": "4.2.2",
    }


def open_mpi_5(rank=1, size=2, local_size=2) -> dict[str, str]:
    """A process of mpirun of Open MPI 5, which is PRRTE's."""
    return {
        "OMPI_APP_CTX_NUM_PROCS": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local_size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "OMPI_COMM_WORLD_NODE_RANK": str(rank % local_size),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_FIRST_RANKS": "0",
        "OMPI_NUM_APP_CTX": "1",
        "OMPI_UNIVERSE_SIZE": str(size),
        "PMIX_HOSTNAME": "node7",
        "PMIX_NAMESPACE": "prterun-node7-29749@1",
        "PMIX_RANK": str(rank),
        "PMIX_SERVER_URI41": "prterun-node7-29749@0.0;tcp4://127.0.0.1:50995",
        "PMIX_VERSION": "5.0.3",
        "PRTE_LAUNCHED": "1",
    }


def hydra(rank=1, size=2, local_size=2) -> dict[str, str]:
    """A process of mpiexec.hydra, of MPICH or Intel MPI."""
    return {
        "GFORTRAN_UNBUFFERED_PRECONNECTED": "y",
        "HYDI_CONTROL_FD": "7",
        "MPICH_INTERFACE_HOSTNAME": "node7",
        "MPI_LOCALNRANKS": str(local_size),
        "MPI_LOCALRANKID": str(rank % local_size),
        "PMI_FD": "9",
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
    }


def pals(rank=1, size=2, local_size=2) -> dict[str, str]:
    """A process of mpiexec or aprun of Cray's PALS, in a job of PBS."""
    return {
        "PALS_APID": "5f0a5c0e-6b3a-4b1e-9d36-6d5a1d2f0c11",
        "PALS_APINFO": "/var/run/palsd/5f0a5c0e/apinfo",
        "PALS_FD": "3",
        "PALS_LOCAL_RANKID": str(rank % local_size),
        "PALS_LOCAL_SIZE": str(local_size),
        "PALS_NODEID": str(rank // local_size),
        "PALS_RANKID": str(rank),
        "PALS_SPOOL_DIR": "/var/run/palsd/5f0a5c0e",
        "PBS_JOBID": "99.pbs",
        "PBS_NODEFILE": "/var/spool/pbs/aux/99.pbs",
        "PMI_CONTROL_PORT": "26757",
        "PMI_JOBID": "99",
        "PMI_LOCAL_RANK": str(rank % local_size),
        "PMI_LOCAL_SIZE": str(local_size),
        "PMI_RANK": str(rank),
        "PMI_SHARED_SECRET": "1",
        "PMI_SIZE": str(size),
        "PMI_UNIVERSE_SIZE": str(size),
    }


def pmix(rank=1) -> dict[str, str]:
    """A process of a launcher that speaks PMIx and nothing else."""
    return {"PMIX_RANK": str(rank), "PMIX_NAMESPACE": "prte-x@1", "PMIX_HOSTNAME": "node7"}
