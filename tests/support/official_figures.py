"""Published figures of official results, recomputed by an independent parser from the same files.

Sources: the result logs of mlcommons/training_results_v0.5 (commit c71f2e7) and the entries of
stanford-futuredata/dawn-bench-entries (commit fb27b82). Times of trials are in the order of the
numbers of their files.
"""

from typing import NamedTuple

_NVIDIA = "v0.5.0/nvidia/submission/results"
RESNET_1 = f"{_NVIDIA}/dgx1_ngc18.11_mxnet/resnet"
RESNET_80 = f"{_NVIDIA}/dgx1_multi_ngc18.11_mxnet/resnet"
SSD_8 = f"{_NVIDIA}/dgx1_multi_ngc18.11_pytorch/ssd"
"""Sources of entries of MLPerf v0.5."""


class MlperfRow(NamedTuple):
    """One official MLPerf v0.5 entry; seconds unless the name says otherwise."""

    entry: str
    reached: int
    trials: int
    mean: float
    score_minutes: float | None
    cv_percent: float
    rule: str
    epochs_mean: float
    epochs_std: float
    per_epoch_mean: float
    per_epoch_std: float
    ratio: float
    logged_batch: tuple[int, ...]
    times: tuple[float, ...]


class DawnbenchRow(NamedTuple):
    """One official DAWNBench training entry: its place by time, and the row that decides."""

    task: str
    rank: int
    name: str
    date: str
    hours: float
    epoch: float
    metric: float
    cost_usd: float | None


_MLPERF = """
google/cloud_v100x8/results/8xV100/resnet
  5/5 8262.882 137.8002 0.206 last_eval 61 0 135.4571 0.2791 0 2048
  8279.087 8272.543 8271.997 8259.500 8231.281
google/cloud_v2.8/gnmt-tpuv2-8/results/tpu/gnmt
  10/10 2423.299 40.371 0.3931 last_eval+1 2 0 1211.6496 4.7625 0 2048
  2420.653 2430.450 2411.443 2423.492 2444.660 2420.687 2429.927 2423.711 2410.257 2417.712
google/cloud_v2.8/resnet-tpuv2-8/results/tpu/resnet
  5/5 18088.604 301.5778 1.0588 last_eval+1 62 0.6325 291.7506 0.1997 14.906 1024
  18091.039 18381.895 18085.719 18107.245 17777.121
google/cloud_v2.8/ssd-tpuv2-8/results/tpu/ssd
  5/5 6001.451 96.8846 6.3558 last_eval+1 50 2 119.9222 2.6727 1.795 125+128
  5803.755 5815.931 5815.019 5808.269 6764.279
google/cloud_v3.8/gnmt-tpuv3-8/results/tpu/gnmt
  10/10 1578.072 26.3143 0.4134 last_eval+1 2 0 789.036 3.2622 0 2048
  1586.525 1577.943 1586.290 1573.576 1563.313 1578.292 1578.495 1581.789 1581.324 1573.173
google/cloud_v3.8/resnet-tpuv3-8/results/tpu/resnet
  5/5 10966.588 183.4029 0.7038 last_eval+1 61.8 0.4 177.4522 0.106 10.835 1024
  11005.547 10812.265 11008.156 11001.874 11005.099
google/cloud_v3.8/ssd-tpuv3-8/results/tpu/ssd
  5/5 4592.382 74.8799 10.5977 last_eval+1 50 2 91.8222 8.9101 0.412 125+128
  5026.956 4206.159 4245.258 5325.361 4158.174
google/research_v3.32/gnmt-tpuv3-32/results/tpu/gnmt
  10/10 587.683 9.7167 3.8195 last_eval+1 2 0 293.8417 11.2234 0 4096
  575.541 577.555 624.388 579.293 575.875 578.887 639.506 576.377 573.316 576.096
google/research_v3.32/resnet-tpuv3-32/results/tpu/resnet
  5/5 3588.616 59.8852 2.9647 last_eval+1 64 0 56.0721 1.6623 0 4096
  3547.206 3721.252 3701.006 3442.501 3531.116
google/research_v3.32/ssd-tpuv3-32/results/tpu/ssd
  5/5 1068.084 17.8179 0.6019 last_eval+1 49 0 21.7976 0.1312 0 32+125
  1070.299 1057.335 1064.895 1075.857 1072.033
google/research_v3.512/resnet-tpuv3-512/results/tpu/resnet
  5/5 426.998 7.0752 7.8698 last_eval+1 75.2 7.3321 5.6885 0.1118 4.961 16384
  463.428 470.412 395.620 391.038 414.490
intel/intel_ncf_submission/results/skx8180/ncf
  55/100 1784.754 - 18.2219 train 8.0545 1.5541 222.0569 4.1781 10.255 -
intel/intel_resnet_submission/results/skx_8180_2s_1x/resnet
  5/5 622035.4 10402.1111 1.1489 n_eval 64.4 0.8 9659.0508 11.5091 10.426 32
  628081.000 627423.000 626817.000 618140.000 609716.000
intel/intel_resnet_submission/results/skx_8180_2s_8x/resnet
  5/5 78772.4 1312.8056 0.8549 n_eval 62 0 1270.5226 10.862 0 32
  77852.000 79302.000 78253.000 79705.000 78750.000
intel/intel_resnet_submission/results/skx_8180_4s_4x/resnet
  5/5 79962.8 1332.1222 1.8044 n_eval 61.6 0.4899 1298.0248 15.8999 0.649 32
  78208.000 81475.000 78787.000 79520.000 81824.000
nvidia/submission/results/dgx1_multi_ngc18.11_mxnet/resnet
  5/5 374.572 6.2417 0.221 train 82 0 4.568 0.0101 0 26
  374.176 374.484 374.854 375.931 373.417
nvidia/submission/results/dgx1_multi_ngc18.11_pytorch/ssd
  5/5 389.628 6.4954 6.7208 train 54.8 3.4871 7.1086 0.0418 10.827 32
  391.562 389.450 388.163 430.850 348.114
nvidia/submission/results/dgx1_ngc18.11_mxnet/resnet
  5/5 8070.11 134.5587 0.4127 train 63 0 128.097 0.5286 0 208
  8097.977 8107.915 8040.376 8022.063 8082.219
nvidia/submission/results/dgx1_ngc18.11_pytorch/ncf
  86/100 28.607 - 8.9293 train 16.6395 1.9345 1.7246 0.0476 4.209 1048576
nvidia/submission/results/dgx1_ngc18.11_pytorch/transformer
  10/10 1990.811 32.6912 13.778 train 3.3 0.4583 603.3607 1.9251 43.523 5120
  1816.575 1817.629 2413.500 2410.550 1814.748 1806.467 1817.531 1802.848 1803.165 2405.094
nvidia/submission/results/dgx2_ngc18.11_mxnet/resnet
  5/5 4440.22 73.9396 0.2219 train 64 0 69.3784 0.1539 0 256
  4432.903 4435.628 4432.866 4459.099 4440.602
nvidia/submission/results/dgx2_ngc18.11_pytorch/gnmt
  10/10 611.335 10.452 13.8276 train 2.8 0.4 218.5209 1.3468 23.178 1024
  441.623 652.310 654.542 654.769 652.643 652.358 653.819 654.238 442.933 654.113
nvidia/submission/results/dgx2_ngc18.11_pytorch/ncf
  80/100 24.558 - 7.1329 train 16.125 1.8666 1.5309 0.0699 2.535 1048576
nvidia/submission/results/dgx2_ngc18.11_pytorch/ssd
  5/5 935.685 15.8827 4.3236 train 53.8 2.4 17.3933 0.0972 7.979 128
  964.123 951.939 957.515 949.441 855.407
nvidia/submission/results/dgx2_ngc18.11_pytorch/transformer
  10/10 1263.292 21.1674 10.5657 train 4.6 0.4899 274.6554 0.603 48.507 10240
  1376.249 1099.813 1373.176 1372.430 1103.271 1368.180 1373.071 1370.431 1096.315 1099.988
nvidia/submission/results/dgx2h_multi_ngc18.11_mxnet/resnet
  5/5 444.899 7.4357 2.2804 train 80.4 1.9596 5.5338 0.0151 8.944 32
  454.411 453.073 451.953 431.656 433.401
nvidia/submission/results/dgx2h_multi_ngc18.11_pytorch/ssd
  5/5 337.472 5.5557 8.0837 train 53.6 4.1761 6.2948 0.0326 15.022 32
  380.071 343.662 307.264 308.397 347.968
nvidia/submission/results/dgx2h_ngc18.11_mxnet/resnet
  5/5 4201.298 70.0119 0.1162 train 64 0 65.6453 0.0763 0 256
  4195.326 4209.018 4203.416 4196.912 4201.818
nvidia/submission/results/dgx2h_ngc18.11_pytorch/ncf
  83/100 24.067 - 6.8148 train 16.3735 1.7883 1.4766 0.063 2.559 1048576
nvidia/submission/results/dgx2h_ngc18.11_pytorch/ssd
  5/5 841.479 14.1285 5.3983 train 52.6 2.9394 15.9995 0.0484 18.481 128
  788.179 877.591 877.361 880.660 783.603
nvidia/submission/results/dgx2h_ngc18.11_pytorch/transformer
  10/10 1196.028 19.2097 20.2517 train 4.8 0.9798 249.2515 0.4921 103.395 10240
  1492.957 998.753 1243.482 998.819 1741.428 1243.966 999.749 999.171 1243.765 998.191
"""

_DAWNBENCH = """
ImageNet 1 alibabacloud_resnet50_gn6e_16_machine_tensorflow 2020-03-17 0.043763889 27 93.04 14.42
ImageNet 2 huaweicloud_resnet50_modelarts_16_machine_tensorflow18 2019-05-08
  0.045093458 36 93.1008757 -
ImageNet 3 huaweicloud_resnet50_modelarts_16_machine_mxnet121 2018-12-30 0.155883 29 93.1202 -
ImageNet 4 fastai_resnet50_p3_16_machine_pytorch 2018-09-06 0.301439277 38 93.1100006 118.07
ImageNet 5 fastai_resnet50_p3_8_machine_pytorch 2018-09-07 0.31472 29 93.012 61.63
ImageNet 6 alibabacloud_resnet50_gn6e_1_machine_tensorflow 2020-03-10 0.360461111 20 93.05 7.43
ImageNet 7 fastai_resnet50_p3_4_machine_pytorch 2018-09-07 0.49509 28 93.008 48.48
ImageNet 8 google_resnet50_tpupod_tensorflow18 2018-04-18 0.511944444 87 93.0 -
ImageNet 9 google_amoeba_net_d_quater_tpupod_tensorflow18 2018-04-20 1.108714 40 93.03 -
ImageNet 10 gehc_resnet50_1_p3_16xlarge_tensorflow111 2019-02-25 1.74258889 36.2 93.11 42.66
ImageNet 11 google_amoeba_net_d_sixteenth_tpupod_tensorflow18 2018-04-20 1.973081 32 93.03 -
ImageNet 12 google_resnet50_tpu_tensorflow111_fastai 2018-09-29 2.741805 41 93.18 12.6
ImageNet 13 fastai_pytorch 2018-04-20 2.95753319 41 93.002 72.4
ImageNet 14 Intel_Resnet50_4K_ec2_Xeon_8124M_intelcaffe 2018-04-20 3.431735 85 93.0202 -
ImageNet 15 Intel_Resnet56_ec2_Xeon_8124M_intercaffe 2018-04-19 3.529587 81 93.1062 -
ImageNet 16 google_resnet50_tpu_tensorflow111 2018-09-29 5.87509722 66 93.09 27.0
ImageNet 17 Intel_Resnet50_ec2_Xeon_8124M_intelcaffe 2018-04-18 6.163689 81 93.0482 -
ImageNet 18 google_amoeba_net_d_tpu_tensorflow18 2018-04-13 7.474843 33 93.04 49.3
ImageNet 19 google_resnet50_tpu_tensorflow18 2018-04-19 8.87565222 81 93.01 58.53
ImageNet 20 google_resnet50_tpu_tensorflow17 2018-03-25 12.4441667 78 93.05 82.07
ImageNet 21 diux_resnet50_p3-tensorpack 2018-01-31 14.6330556 81 93.058 358.22
ImageNet 22 ppwwyyxx_resnet152_8P100-DGX1_tensorpack 2017-12-05 44.4741667 61 93.6 -
ImageNet 23 dawn_resnet152_b_8k80_ec2_mxnet 2017-10-27 243.999498 107 93.0046 1112.64
ImageNet 24 dawn_resnet152_b_4M60_ec2_tensorflow 2017-10-27 322.693435 91 93.03 2323.39
CIFAR10 1 apple_resnet9_8v100_pytorch 2019-12-11 0.00261910276 15 94.2 -
CIFAR10 2 ajay_resnet9_4v100_pytorch 2020-01-05 0.00296207543 13 94.05 -
CIFAR10 3 kakaobrain_custom-resnet9_4v100-braincloud_pytorch 2019-10-15 0.00777124 33 94.02 -
CIFAR10 4 BAIDU-USA-GAIT_BaiduNet9P_8GV100_pytorch 2019-05-28 0.01234526 21 94.01 0.11
CIFAR10 5 BAIDU-USA-GAIT_BaiduNet9_1GV100_pytorch 2019-05-07 0.01994991 24 94.1 0.02
CIFAR10 6 ajay_resnet9_1v100_pytorch 2019-04-14 0.02048723 24 94.06 -
CIFAR10 7 davidcpage_resnet9_1v100-ec2_pytorch 2018-11-06 0.02056706 24 94.08 0.06
CIFAR10 8 lambda_BaiduNet9_lambda_cloud_single_pytorch 2019-08-13 0.02829251 23 94.02 0.04
CIFAR10 9 fastai_pytorch 2018-04-18 0.0483219328 35 94.03 1.18
CIFAR10 10 basenet 2018-04-20 0.0946198489 30 94.08 0.29
CIFAR10 11 fastai_pytorch_single_volta 2018-04-19 0.112245364 26 94.0400001 0.26
CIFAR10 12 diux_cifar_p3 2018-01-31 1.13194444 89 94.03 3.46
CIFAR10 13 dawn_resnet164_nb_1p100-dawn_pytorch 2017-10-11 2.52818597 138 94.25 -
CIFAR10 14 dawn_resnet164_nb_1p100-dawn_tensorflow_part2 2018-02-02 2.7969454 150.144 94.01 -
CIFAR10 15 dawn_resnet164_b_1p100-dawn_pytorch 2017-10-11 3.03102109 138 94.19 -
CIFAR10 16 diux_cifar_g3 2018-01-31 3.31361111 89 94.08 3.78
CIFAR10 17 dawn_resnet164_nb_1p100-dawn_tensorflow 2017-10-11 3.34072165 158.152 94.06 -
CIFAR10 18 dawn_resnet164_b_1p100-dawn_tensorflow 2017-10-11 3.49155515 145.139 94.02 -
CIFAR10 19 dawn_resnet164_b_1k80-gc_pytorch 2017-10-11 9.05799366 137 94.18 8.76
CIFAR10 20 dawn_resnet164_b_1k80-ec2_pytorch 2017-10-11 9.27540266 137 94.14 8.35
CIFAR10 21 dawn_resnet164_nb_1k80-gc_tensorflow 2017-10-11 10.0457051 144.138 94.02 9.71
CIFAR10 22 dawn_resnet164_nb_1k80-ec2_pytorch 2017-10-11 10.5370774 152 94.08 9.48
CIFAR10 23 dawn_resnet164_b_1k80-ec2_tensorflow 2017-10-11 10.8855146 138.132 94.01 9.8
CIFAR10 24 dawn_resnet164_b_1k80-gc_tensorflow 2017-10-11 11.0061023 139.133 94.01 10.64
CIFAR10 25 dawn_resnet164_nb_16vCPUs-gc_pytorch 2017-10-11 79.4483233 141 94.05 42.35
CIFAR10 26 dawn_resnet164_nb_16vCPUs-gc_tensorflow 2017-10-11 94.1630031 161.155 94.02 50.19
CIFAR10 27 dawn_resnet164_b_16vCPUs-gc_pytorch 2017-10-11 97.1774236 137 94.4 51.8
CIFAR10 28 dawn_resnet164_b_16vCPUs-gc_tensorflow 2017-10-11 102.802163 139.133 94.04 54.79
SQuAD 1 dawn_fastfusionnet-1080ti 2019-03-01 0.312728762 4 0.75318316 -
SQuAD 2 dawn_drqa_1nv2080-dev 2018-12-14 0.451809911 8 0.751458376 -
SQuAD 3 dawn_qanet_1tpu 2018-04-20 0.765277778 18 0.75788 -
SQuAD 4 dawn_drqa_1t4-gc_pytorch 2018-12-14 0.839164616 7 0.754480996 0.76
SQuAD 5 dawn_drqa_1p4-gc_pytorch 2018-12-14 0.945259993 7 0.755666791 0.57
SQuAD 6 dawn_drqa_1p100-ec2 2018-09-29 1.00950667 10 0.756936103 3.09
SQuAD 7 dawn_bidaf_1k80-ec2_tensorflow 2017-10-12 7.63588619 10 0.752272308 6.87
SQuAD 8 dawn_bidaf_1p100-dawn_tensorflow 2017-10-12 7.85601645 10 0.750683606 -
SQuAD 9 dawn_bidaf_16vCPUs-gc_tensorflow 2017-10-12 10.8394118 9 0.752946258 5.78
"""


def mlperf_rows() -> list[MlperfRow]:
    """The rows of MLPerf v0.5."""
    blocks: list[list[str]] = []
    for line in _MLPERF.strip().splitlines():
        if not line.startswith(" "):
            blocks.append([line])
        else:
            blocks[-1] += line.split()
    return [_mlperf_row(*block) for block in blocks]


def _mlperf_row(entry: str, counts: str, *cells: str) -> MlperfRow:
    mean, score, cv, rule, epochs, epochs_std, per_epoch, per_epoch_std, ratio, batch = cells[:10]
    reached, trials = counts.split("/")
    return MlperfRow(
        entry=entry,
        reached=int(reached),
        trials=int(trials),
        mean=float(mean),
        score_minutes=None if score == "-" else float(score),
        cv_percent=float(cv),
        rule=rule,
        epochs_mean=float(epochs),
        epochs_std=float(epochs_std),
        per_epoch_mean=float(per_epoch),
        per_epoch_std=float(per_epoch_std),
        ratio=float(ratio),
        logged_batch=() if batch == "-" else tuple(int(size) for size in batch.split("+")),
        times=tuple(map(float, cells[10:])),
    )


def dawnbench_rows() -> list[DawnbenchRow]:
    """The leaderboards of ImageNet, CIFAR10 and SQuAD by training time."""
    rows = []
    for line in _DAWNBENCH.strip().replace("\n  ", " ").splitlines():
        task, rank, name, date, hours, epoch, metric, cost = line.split()
        price = None if cost == "-" else float(cost)
        rows.append(
            DawnbenchRow(
                task, int(rank), name, date, float(hours), float(epoch), float(metric), price
            )
        )
    return rows
