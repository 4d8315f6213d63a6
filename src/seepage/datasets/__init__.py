"""Datasets by name: bundled, from a local folder, downloaded from their official home, or generated.

A dataset is one module here that registers its loader; importing it below is its registration.
"""

from seepage.datasets import adult as adult
from seepage.datasets import adult_education as adult_education
from seepage.datasets import bank_additional as bank_additional
from seepage.datasets import bank_full as bank_full
from seepage.datasets import cifar10 as cifar10
from seepage.datasets import credit as credit
from seepage.datasets import crime as crime
from seepage.datasets import german as german
from seepage.datasets import graphs as graphs
from seepage.datasets import health_heritage as health_heritage
from seepage.datasets import health_years as health_years
from seepage.datasets import lawschool as lawschool
from seepage.datasets import reviews as reviews
from seepage.datasets import synthetic as synthetic
from seepage.datasets import synthetic_highdim as synthetic_highdim
from seepage.datasets import taobao as taobao
from seepage.datasets import taobao_synthetic as taobao_synthetic
from seepage.datasets.catalogue import Listing, catalogue, load
from seepage.datasets.dataset import Dataset
from seepage.datasets.own import from_frame, own_table

__all__ = ["Dataset", "Listing", "catalogue", "from_frame", "load", "own_table"]
