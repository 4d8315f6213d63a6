"""The registries, filled: importing this imports every package whose parts an audit can name."""

from seepage import assessment as assessment
from seepage import attacks as attacks
from seepage import baselines as baselines
from seepage import datasets as datasets
from seepage import defenses as defenses
from seepage import models as models
from seepage import protocols as protocols
from seepage import registry as registry
