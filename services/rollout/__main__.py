from potstill.service.serve import run_service
from services.rollout.app import build
from services.rollout.settings import RolloutSettings

if __name__ == "__main__":
    run_service(RolloutSettings, build)
