from potstill.service.serve import run_service
from services.verifier.app import build
from services.verifier.settings import VerifierSettings

if __name__ == "__main__":
    run_service(VerifierSettings, build)
